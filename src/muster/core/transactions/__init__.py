"""The transaction coordinator: pure, beside that of the groups."""
