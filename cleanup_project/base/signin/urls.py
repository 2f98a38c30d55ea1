"""What may be done about signing in; allauth's other pages (sign up, addresses, connections) do not exist here."""

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as codes
from django.urls import path

from cleanup_project.base.signin import provider, views

urlpatterns = [
    path("", views.SignIn.as_view(), name="account_login"),
    path("out/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("code/", mfa.authenticate, name="mfa_authenticate"),
    path("again/", account.reauthenticate, name="account_reauthenticate"),
    path("again/code/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("again/done/", provider.came_again, name="signin_proved"),
    path("own/", views.OwnSignIn.as_view(), name="mfa_index"),
    path("own/password/", views.ChangePassword.as_view(), name="account_change_password"),
    path("own/password/none/", views.no_password, name="account_set_password"),
    path("own/factor/add/", views.AddFactor.as_view(), name="mfa_activate_totp"),
    path("own/factor/remove/", views.RemoveFactor.as_view(), name="mfa_deactivate_totp"),
    path("own/codes/", codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("own/codes/new/", views.NewCodes.as_view(), name="mfa_generate_recovery_codes"),
    path("provider/", provider.start, name="signin_provider"),
    path("provider/again/", provider.start_again, name="signin_provider_again"),
    path("<str:provider_id>/callback/", provider.callback, name="openid_connect_callback"),
]
