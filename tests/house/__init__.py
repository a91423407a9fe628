"""The rules of the house, as tests: what reviewers would otherwise have to remember."""
