from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from cleanup_project.operations import triggers
from cleanup_project.operations.api import docspage, edge, site
from cleanup_project.operations.pages import dashboard, find, mywork

page = admin.site.admin_view

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="my-work")),
    path("admin/work/", page(mywork.page), name="my-work"),
    path("admin/dashboard/", page(dashboard.page), name="dashboard"),
    path("admin/find/", page(find.page), name="find"),
    path("signin/", include("cleanup_project.base.signin.urls")),
    path("admin/", admin.site.urls),
    path("triggers/tick", triggers.trigger(triggers.tick), name="trigger-tick"),
    path("triggers/wake", triggers.trigger(triggers.wake), name="trigger-wake"),
    path("api/v1/openapi.json", docspage.description, name="api-description"),
    path("api/v1/docs", docspage.page, name="api-docs"),
    path("api/v1/", edge.nothing_here),
    path("api/v1/", site.api.urls),
    re_path(r"^api(?:/.*)?\Z", edge.nothing_here, name="api-nothing"),
]
