# SPDX-License-Identifier: BSD-3-Clause
"""Settings of Django's own tests: databases in files of the working folder."""
import os

import recorder
from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return recorder.Result


TEST_RUNNER = 'django_files.Runner'
DATABASES = {name: {'ENGINE': 'django.db.backends.sqlite3', 'NAME': os.path.join(os.getcwd(), f'{name}.db'),
                    'TEST': {'NAME': os.path.join(os.getcwd(), f'test_{name}.db')}}
             for name in ['default', 'other']}
SECRET_KEY = 'of a test'
PASSWORD_HASHERS = ['django.contrib.auth.hashers.MD5PasswordHasher']
DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'
USE_TZ = False
