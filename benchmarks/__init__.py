"""Measurements that take longer than a test may. Run ``python -m benchmarks NAME``."""
