"""A project of Django: its settings, its tasks, and programs that use them."""
