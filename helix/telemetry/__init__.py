"""Who looks on while a run goes: OpenTelemetry spans, and a log of what happens. Nothing here changes a run."""
