import django.contrib.auth.models
import django.contrib.auth.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from cleanup_project.base import sqlfiles


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('django_q', '0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more'),
    ]

    operations = [
        migrations.CreateModel(
            name='Right',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'permissions': [('draft_policy', 'Draft and submit a retention policy'), ('publish_policy', 'Publish a policy revision or widen enforcement (not the author)'), ('approve_run', 'Approve a run, exempt items (not who opened it)'), ('place_hold', 'Place a legal hold, request its release'), ('approve_release', 'Approve the release of a hold (not who asked)'), ('review_quarantine', 'Review quarantine, close without retry'), ('operate', 'Replay, pause, resume, manage endpoints, redeliver'), ('stop', 'Press the stop switch'), ('rearm', 'Lift the stop switch, re-arm a circuit breaker'), ('read_everything', 'Read everything'), ('export_receipts', 'Export receipts'), ('manage_settings', 'Manage users, buckets, tokens and settings')],
                'managed': False,
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('username', models.CharField(error_messages={'unique': 'A user with that username already exists.'}, help_text='Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.', max_length=150, unique=True, validators=[django.contrib.auth.validators.UnicodeUsernameValidator()], verbose_name='username')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('email', models.EmailField(blank=True, max_length=254, verbose_name='email address')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'verbose_name': 'user',
                'verbose_name_plural': 'users',
                'abstract': False,
            },
            managers=[
                ('objects', django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('actor_name', models.CharField(help_text="The person's name at the time, or the system's part.", max_length=150)),
                ('action', models.CharField(help_text='For example policy.published.', max_length=64)),
                ('subject_type', models.CharField(max_length=64)),
                ('subject_id', models.CharField(max_length=64)),
                ('subject_label', models.TextField()),
                ('reason', models.TextField(blank=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('actor', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'audit event',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['subject_type', 'subject_id', '-id'], name='audit_subject'), models.Index(fields=['actor', '-id'], name='audit_actor')],
            },
        ),
        migrations.CreateModel(
            name='Heartbeat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=255)),
                ('queue', models.CharField(help_text='The key of its messages.', max_length=100)),
                ('pid', models.PositiveIntegerField(help_text='Of its main process, which leads a session of its own.', null=True)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When its supervisor last looked.')),
                ('last_tick_at', models.DateTimeField(null=True)),
                ('last_start_at', models.DateTimeField(null=True)),
                ('last_end_at', models.DateTimeField(null=True)),
                ('last_ack_at', models.DateTimeField(null=True)),
                ('unacked_since', models.DateTimeField(help_text='The first end of a task that no acknowledgement followed.', null=True)),
                ('restarts', models.PositiveIntegerField(default=0)),
                ('restart_reason', models.TextField(blank=True, help_text='Of the last restart.')),
            ],
            options={
                'verbose_name': 'worker cluster',
                'ordering': ['host', 'queue', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Alarm',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(help_text='For example catalogue.stale.', max_length=64)),
                ('subject_type', models.CharField(max_length=64)),
                ('subject_id', models.CharField(max_length=64)),
                ('subject_label', models.TextField()),
                ('message', models.TextField(help_text='What is wrong, with its numbers, and what to do.')),
                ('raised_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('noticed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it was last found to be so.')),
                ('cleared_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('cleared_at', None)), fields=('kind', 'subject_type', 'subject_id'), name='alarm_once'), models.CheckConstraint(condition=models.Q(('message', ''), _negated=True), name='alarm_says_what')],
            },
        ),
        # The broker's poll: django-q2 itself indexes only the id, and messages in hand would be read at every poll.
        migrations.RunSQL('CREATE INDEX ormq_by_key_and_lock ON django_q_ormq (key, lock)', 'DROP INDEX ormq_by_key_and_lock'),
        sqlfiles.run(__file__, "refuse_change.sql", undo="DROP FUNCTION refuse_change()"),
        sqlfiles.append_only("base_auditevent"),
    ]
