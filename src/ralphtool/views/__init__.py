"""The views of a run: terminal, full screen, report, web page, OpenTelemetry."""
