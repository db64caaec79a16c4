"""A run for OpenTelemetry: spans and metrics, made from the record and from nothing else."""
