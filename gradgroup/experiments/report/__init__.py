"""What a study has come to: scores, measurements, verdicts, the report."""

from gradgroup.experiments.report._measure import peak_of_memory

__all__ = ["peak_of_memory"]
