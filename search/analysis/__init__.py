"""Operations on an existing study: analyse it, retrain a trial, export it."""
