"""A run for OpenTelemetry: spans and metrics, built only from the record."""
