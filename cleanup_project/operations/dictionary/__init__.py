"""The data dictionary: every table and column in words, made from the models and from what these modules say beside them."""
