"""What people see. Nothing here decides anything or writes a file."""
