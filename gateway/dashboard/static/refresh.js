// While something on the page still runs: fetch the page again and replace what it shows.
"use strict";

async function refresh() {
  const shown = document.getElementById("main");
  const wait = 1000 * Number(shown.dataset.refreshS);
  if (!wait) return; // everything has ended
  const used = shown.contains(document.activeElement) && document.activeElement !== shown;
  if (!document.hidden && !used && document.getSelection().isCollapsed) {
    try {
      const reply = await fetch(location.href, { cache: "no-store" });
      if (reply.status === 401 && (reply.headers.get("WWW-Authenticate") || "").startsWith("Bearer")) {
        location.reload(); // the browser's session has ended: the page leads to a login
        return;
      }
      if (reply.ok) {
        const page = new DOMParser().parseFromString(await reply.text(), "text/html");
        document.title = page.title;
        shown.replaceWith(document.adoptNode(page.getElementById("main")));
      }
    } catch {
      // the gateway is away; ask again
    }
  }
  setTimeout(refresh, wait);
}

setTimeout(refresh, 1000);
