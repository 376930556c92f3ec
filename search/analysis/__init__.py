"""What can be done with a study that ran: look back, train a trial again, export it."""
