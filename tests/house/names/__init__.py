"""The names that README, docs and help texts show, and where each of them is defined."""
