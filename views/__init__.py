"""What people see: tables, reports and the live view of a study, as text."""
