"""What is told of calls and jobs: spans, and what is measured."""
