"""The app of `manage.py shardq_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class ShardqConfig(AppConfig):
    """An app without models."""

    name = "shardq.django"
    label = "shardq_django"
    verbose_name = "shardq"
