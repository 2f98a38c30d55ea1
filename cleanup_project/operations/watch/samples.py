"""One value of a metric."""

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """`family` is a name in `families.FAMILIES`; `suffix` is what a histogram's own samples are called besides."""

    family: str
    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""
