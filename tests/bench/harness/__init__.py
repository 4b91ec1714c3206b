"""The benchmarks' driver: see tests/bench/run."""
