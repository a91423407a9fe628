"""Settings of the project. The environment says which backend it has, and where its server and its database are."""

from __future__ import annotations

import json
import os

SECRET_KEY = "of a project that serves nobody"
USE_TZ = True
INSTALLED_APPS = ["shardq.django", "tests.django.site"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SITE_DATABASE", ":memory:")}}
OPTIONS = json.loads(os.environ.get("SITE_OPTIONS", "{}"))
TASKS = {
    "default": {
        "BACKEND": os.environ.get("SITE_BACKEND", "shardq.django.Backend"),
        "QUEUES": ["default", "mails"],
        "OPTIONS": OPTIONS,
    }
}
