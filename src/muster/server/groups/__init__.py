"""Requests about groups: they become events of their coordinators; and what else of a server is about groups alone."""
