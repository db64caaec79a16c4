"""What people see: terminal, full screen, report."""
