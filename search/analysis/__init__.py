"""Operations on a study that ran: analyse it, train a trial again, export it."""
