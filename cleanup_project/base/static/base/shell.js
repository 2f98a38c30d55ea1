// Polling stops while a page is hidden. htmx may not evaluate anything here, so this cannot be said in a trigger's filter.
"use strict";
document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.detail.requestConfig.triggeringEvent === undefined) {
        event.preventDefault();
    }
});
