"""The statistics processor: PySpark jobs that make data and describe it. Started as a process, never imported."""
