"""Operations on a study that has run: analyse it, retrain a trial, export it."""
