"""What is told to other systems of how this one fares: probes, metrics, alarms by deadline, e-mail."""
