import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('base', '0001_people_rights_and_audit'),
        ('socialaccount', '0006_alter_socialaccount_extra_data'),
    ]

    operations = [
        migrations.CreateModel(
            name='Session',
            fields=[
                ('session_key', models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name='session key')),
                ('session_data', models.TextField(verbose_name='session data')),
                ('expire_date', models.DateTimeField(db_index=True, verbose_name='expire date')),
                ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'session',
                'verbose_name_plural': 'sessions',
                'abstract': False,
            },
        ),
        # What Django's `createcachetable` makes.
        migrations.RunSQL(
            'CREATE TABLE base_cache (cache_key varchar(255) PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL);'
            'CREATE INDEX base_cache_expires ON base_cache (expires);',
            'DROP TABLE base_cache',
        ),
        # (provider, subject) is unique already, so that nobody has two accounts; nor has an account two people.
        migrations.RunSQL(
            'CREATE UNIQUE INDEX one_subject_for_each_person ON socialaccount_socialaccount (user_id, provider)',
            'DROP INDEX one_subject_for_each_person',
        ),
        migrations.CreateModel(
            name='ApiUse',
            fields=[
                ('token', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='base.apitoken')),
                ('minute', models.BigIntegerField(help_text='Since 1970.')),
                ('reads', models.PositiveIntegerField()),
                ('writes', models.PositiveIntegerField()),
            ],
        ),
        # Written at each request of the API: without a log no request waits for the disk, and a crash forgets one minute.
        migrations.RunSQL('ALTER TABLE base_apiuse SET UNLOGGED', 'ALTER TABLE base_apiuse SET LOGGED'),
    ]
