"""What Django must know."""

import os

SECRET_KEY = "an example's"
ALLOWED_HOSTS = ["localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
INSTALLED_APPS = ["shop", "shardq.django"]
TASKS = {
    "default": {
        "BACKEND": "shardq.django.Backend",
        "OPTIONS": {
            "url": os.environ.get("SHARDQ_URL", "redis://localhost:6379"),
            "shard_key": "account",  # the argument that says whose a call is
        },
    }
}
