import django.db.models.deletion
import django.db.models.functions.datetime
import ledger.states
from django.conf import settings
from django.db import migrations, models

from cleanup_project.base import sqlfiles


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('retention', '0001_catalogue_policies_and_holds'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CleanupRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=120, unique=True)),
                ('mode', models.CharField(choices=[('dry_run', 'dry run'), ('enforce', 'enforce')], max_length=7)),
                ('state', models.CharField(choices=[('scanning', 'scanning'), ('needs_approval', 'needs approval'), ('cooling_off', 'cooling off'), ('authorised', 'authorised'), ('draining', 'draining'), ('paused', 'paused'), ('tripped', 'tripped'), ('closed', 'closed'), ('cancelled', 'cancelled')], default=ledger.states.RunState['SCANNING'], max_length=14)),
                ('as_of', models.DateTimeField(help_text='The instant at which eligibility is judged.')),
                ('scheduled_for', models.DateTimeField(blank=True, help_text='The slot of the schedule; empty: by hand.', null=True)),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True, unique=True)),
                ('streams', models.JSONField(help_text='What is scanned, in order.')),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('sealed_at', models.DateTimeField(blank=True, null=True)),
                ('manifest_root', models.CharField(blank=True, help_text='SHA-256 over the digests of the parts, hex.', max_length=64)),
                ('item_count', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='items')),
                ('target_count', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('end_reason', models.TextField(blank=True)),
                ('opened_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='retention.retentionpolicy')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'run',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ManifestPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('key', models.CharField(max_length=132, unique=True)),
                ('cursor', models.JSONField(help_text='Where the next part begins.')),
                ('digest', models.CharField(help_text='SHA-256 over the digests of the items, hex.', max_length=64)),
                ('item_count', models.PositiveIntegerField(verbose_name='items')),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('read', models.PositiveIntegerField(help_text='Object versions that the page looked at.')),
                ('held', models.PositiveIntegerField(help_text='Eligible, and left out because a legal hold covers them.')),
                ('not_enforced', models.PositiveIntegerField(help_text='Eligible, and left out because enforcement is off there.')),
                ('frozen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='parts', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name': 'manifest part',
                'ordering': ['run', 'number'],
            },
        ),
        migrations.CreateModel(
            name='ManifestItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveBigIntegerField(help_text='Counted through the whole run, from 1.')),
                ('command_key', models.CharField(db_collation='C', max_length=700)),
                ('object_version_id', models.BigIntegerField(help_text='The original, in the catalogue.')),
                ('eligible_since', models.DateTimeField()),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('line', models.TextField(db_collation='C')),
                ('digest', models.BinaryField(max_length=32)),
                ('revision', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.policyrevision')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='ledger.cleanuprun')),
                ('part', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='ledger.manifestpart')),
            ],
            options={
                'verbose_name': 'manifest item',
                'ordering': ['run', 'ordinal'],
            },
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', [ledger.states.RunState['AUTHORISED'], ledger.states.RunState['COOLING_OFF'], ledger.states.RunState['DRAINING'], ledger.states.RunState['NEEDS_APPROVAL'], ledger.states.RunState['PAUSED'], ledger.states.RunState['SCANNING'], ledger.states.RunState['TRIPPED']])), fields=('policy', 'mode'), name='run_no_overlap'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.UniqueConstraint(fields=('policy', 'scheduled_for'), name='run_slot'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('bytes', None), ('item_count', None), ('manifest_root', ''), ('sealed_at', None), ('target_count', None)), models.Q(('bytes__isnull', False), ('item_count__isnull', False), ('sealed_at__isnull', False), ('target_count__isnull', False), models.Q(('manifest_root', ''), _negated=True)), _connector='OR'), name='run_sealed_whole'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [ledger.states.RunState['SCANNING'], ledger.states.RunState['CANCELLED']]), ('sealed_at__isnull', False), _connector='OR'), name='run_sealed_before_authorised'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('state__in', [ledger.states.RunState['AUTHORISED'], ledger.states.RunState['COOLING_OFF'], ledger.states.RunState['DRAINING'], ledger.states.RunState['NEEDS_APPROVAL'], ledger.states.RunState['PAUSED'], ledger.states.RunState['SCANNING'], ledger.states.RunState['TRIPPED']])), models.Q(('ended_at__isnull', False), ('state__in', [ledger.states.RunState['CLOSED'], ledger.states.RunState['CANCELLED']])), _connector='OR'), name='run_ended'),
        ),
        migrations.AddConstraint(
            model_name='manifestpart',
            constraint=models.UniqueConstraint(fields=('run', 'number'), name='part_number'),
        ),
        migrations.AddConstraint(
            model_name='manifestpart',
            constraint=models.CheckConstraint(condition=models.Q(('item_count__lte', 1000), ('read__lte', 1000)), name='part_size'),
        ),
        migrations.AddConstraint(
            model_name='manifestitem',
            constraint=models.UniqueConstraint(fields=('run', 'ordinal'), name='item_ordinal'),
        ),
        sqlfiles.run(__file__, "run_guard.sql", undo="DROP FUNCTION guard_run() CASCADE"),
        sqlfiles.append_only("ledger_manifestpart", "ledger_manifestitem"),
    ]
