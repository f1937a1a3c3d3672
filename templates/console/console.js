// Refreshes the page, and adds keys and times of the user's own zone. Every page works without it.
"use strict";
(() => {
  const USED_FOR_MS = 60000, OFTEN_MS = 3000, SELDOM_MS = 60000, TIMES_OF_A_RESPONSE = 10;
  // An answer without Redis takes 5 s: the page asks every 10 s then.
  const STALE_MS = 5000;
  const byId = (id) => document.getElementById(id);

  // A browser may keep nothing.
  const remembered = (name) => {
    try {
      return localStorage.getItem("quotabell." + name);
    } catch {
      return null;
    }
  };
  const remember = (name, value) => {
    try {
      localStorage.setItem("quotabell." + name, value);
    } catch {
      // Then the defaults hold.
    }
  };

  // What a form did is told once, and not again when somebody comes back.
  const address = location.href, plain = new URL(address);
  plain.searchParams.delete("sent");
  if (/[?&]sent=/.test(address)) history.replaceState(null, "", plain);

  // Redis has the time: the clock of the browser may be wrong.
  const asOf = byId("as-of");
  let aheadMs = 0;
  const noteTime = () => (aheadMs = new Date(asOf.dateTime) - Date.now());
  if (asOf && !document.querySelector("[data-last]")) noteTime();

  // Times: UTC or the user's own zone, with how long ago.
  let isOwnZone = remembered("zone") === "own";
  const clock = (at) => {
    if (!isOwnZone) return at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const zone = at.toLocaleTimeString("en", { timeZoneName: "short" }).split(" ").pop();
    return at.toLocaleString("sv-SE") + " " + zone;
  };
  const relative = new Intl.RelativeTimeFormat("en", { style: "narrow" });
  const distance = (at) => {
    const seconds = (at - Date.now() - aheadMs) / 1000, size = Math.abs(seconds);
    const [unit, length] = size < 60 ? ["second", 1] : size < 3600 ? ["minute", 60]
      : size < 172800 ? ["hour", 3600] : ["day", 86400];
    return relative.format(Math.round(seconds / length), unit);
  };
  const showTimes = (root) => {
    for (const time of root.querySelectorAll("time")) {
      const at = new Date(time.dateTime), text = clock(at);
      // An unchanged text keeps what is selected in it.
      if (time.textContent !== text) time.textContent = text;
      if (time.id !== "as-of") time.dataset.distance = distance(at);
    }
  };
  // On a small screen each cell shows its heading.
  const labelCells = (root) => {
    for (const table of root.querySelectorAll("main table")) {
      table.classList.add("labeled");
      const labels = [...table.querySelectorAll("th")].map((heading) => heading.textContent);
      for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => (cell.dataset.label = labels[at]));
    }
  };
  const finish = (root) => {
    showTimes(root);
    labelCells(root);
  };

  // The other pages: a key or a click elsewhere closes them.
  const more = byId("more"), close = (event) => {
    if (!more?.open || more.contains(event.target) && event.key !== "Escape") return;
    if (more.contains(document.activeElement)) more.querySelector("summary").focus();
    more.open = false;
  };
  addEventListener("pointerdown", close);
  addEventListener("focusin", close);
  addEventListener("keydown", (event) => event.key === "Escape" && close(event));

  // On a small screen the navigation scrolls.
  document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  const zone = byId("zone"), help = byId("help");
  if (!zone) return;
  const showZone = () => {
    zone.textContent = isOwnZone ? "Show UTC" : "Show local time";
    showTimes(document);
  };
  labelCells(document);
  zone.hidden = false;
  zone.addEventListener("click", () => {
    isOwnZone = !isOwnZone;
    remember("zone", isOwnZone ? "own" : "utc");
    showZone();
  });
  showZone();

  // Keys. Each can be turned off, because speech input types letters.
  const move = (by) => {
    const rows = [...document.querySelectorAll("main tbody tr, .problems li")].filter((row) => row.checkVisibility());
    const controls = rows.map((row) => row.querySelector("a, input, button, summary")).filter((control) => control);
    const current = document.activeElement.closest("tr, li");
    const at = controls.findIndex((control) => current?.contains(control));
    controls[at < 0 ? 0 : at + by]?.focus();
  };
  const keys = {
    "/": () => byId("search").focus(),
    "?": () => help.showModal(),
    j: () => move(1),
    k: () => move(-1),
    x: () => document.activeElement.closest("tr")?.querySelector("[type=checkbox]")?.click(),
  };
  const isOn = (key) => remembered("key " + key) !== "off";
  for (const box of help.querySelectorAll("[data-key]")) {
    box.checked = isOn(box.dataset.key);
    box.addEventListener("change", () => remember("key " + box.dataset.key, box.checked ? "on" : "off"));
  }
  addEventListener("keydown", (event) => {
    const act = keys[event.key], isTyping = event.target.closest("textarea, select, input:not([type=checkbox])");
    if (!act || !isOn(event.key) || isTyping || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    event.preventDefault();
    act();
  });
  byId("keys").hidden = false;
  byId("keys").addEventListener("click", keys["?"]);
  byId("help-close").addEventListener("click", () => help.close());

  // Refresh.
  const live = document.querySelector("#live[data-refresh]");
  if (!live) return;
  const pause = byId("pause"), told = byId("told");
  let etag = "", usedAt = Date.now(), responseMs = 0, isPaused = false, timer;

  const isChanged = (field) => {
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (!field.options) return field.value !== field.defaultValue;
    return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
  };
  const isFilledIn = () => [...live.querySelectorAll("input, select, textarea")].some(isChanged);

  // Somebody may log in or out in another tab.
  const visitorOf = (root) => root.querySelector(".visitor")?.textContent;

  const read = async () => {
    if (isFilledIn()) return "not refreshed while a form is filled in,";
    const began = performance.now();
    const headers = etag ? { "If-None-Match": etag } : {};
    const response = await fetch(address, { headers, cache: "no-store", redirect: "manual" });
    const text = response.status === 200 ? await response.text() : "";
    // The session is over, or the page is another one now.
    if (response.type === "opaqueredirect") return location.reload();
    // An earlier page, because Redis was away.
    if (response.ok && live.dataset.last) return location.reload();
    if (response.status !== 304 && !response.ok) throw new Error("status " + response.status);
    responseMs = performance.now() - began;
    asOf.dateTime = response.headers.get("Quotabell-Time");
    noteTime();
    if (response.status === 304) return "";
    const page = new DOMParser().parseFromString(text, "text/html");
    if (isFilledIn()) return "not refreshed while a form is filled in,";
    if (visitorOf(page) !== visitorOf(document)) return location.reload();
    etag = response.headers.get("ETag");
    finish(page);
    document.title = page.title;
    Idiomorph.morph(live, page.getElementById("live"), {
      ignoreActiveValue: true,
      // Only the user opens and closes details.
      callbacks: { beforeAttributeUpdated: (name) => name !== "open" },
    });
    return "";
  };
  const refresh = async () => {
    const wasStale = live.classList.contains("stale");
    let problem;
    try {
      problem = await read();
      live.classList.remove("stale");
      // The end of an outage counts as use.
      if (wasStale) [usedAt, responseMs] = [Date.now(), 0];
    } catch {
      problem = "no answer: this is the state";
      live.classList.add("stale");
    }
    told.textContent = problem;
    showTimes(document);
    plan();
  };
  const plan = () => {
    clearTimeout(timer);
    if (isPaused || document.hidden) return;
    const wait = Date.now() - usedAt < USED_FOR_MS ? OFTEN_MS : SELDOM_MS;
    const isStale = live.classList.contains("stale");
    timer = setTimeout(refresh, isStale ? STALE_MS : Math.max(wait, TIMES_OF_A_RESPONSE * responseMs));
  };

  for (const kind of ["pointerdown", "keydown", "scroll"]) {
    const use = () => {
      const wasUnused = Date.now() - usedAt >= USED_FOR_MS;
      usedAt = Date.now();
      if (wasUnused) plan();
    };
    addEventListener(kind, use, { passive: true });
  }
  document.addEventListener("visibilitychange", () => (document.hidden || isPaused ? plan() : refresh()));
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume refresh" : "Pause refresh";
    if (isPaused) plan();
    else refresh();
  });
  plan();
})();
