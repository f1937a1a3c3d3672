// The console in a browser: every page in light and dark at two widths, and what operators do, with and without scripts.
import assert from "node:assert/strict";
import { stat, writeFile } from "node:fs/promises";
import { after, afterEach, before, test } from "node:test";
import { Browser, SHOTS, obstacles } from "./browser.mjs";
import { TOKENS, eventually } from "./daemon.mjs";
import { TRIALS, startSample } from "./sample.mjs";

let sample, browser, url;

before(async () => {
  sample = await startSample();
  url = sample.daemon.url;
  browser = await Browser.launch();
});
after(async () => {
  await browser?.close();
  await sample?.daemon.remove();
  sample?.receivers.close();
});
/** No page may log an error, break its content security policy or throw. */
afterEach(() => assert.deepEqual(browser.faults.splice(0), []));

const visit = (options) => browser.visit(options);
const logIn = async (context, token = TOKENS.ops) => {
  const page = await context.newPage();
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  return page;
};

const go = (page, path) => page.goto(url + path);
const outcome = async (page, text) => {
  await page.locator(".outcome").filter({ hasText: text }).waitFor();
};
/** The next refresh of a page, with its answer. */
const refreshed = (page) => page.waitForResponse((response) => response.request().resourceType() === "fetch");

const PAGES = {
  overview: "", near: "near", top: "top?by=used&metric=requests", subjects: "subjects", subject: "subject?id=acme",
  waiting: "subject?id=umbrella", alerts: "alerts", deliveries: "deliveries", dead: "deliveries?state=dead",
  delivery: null, destinations: "destinations", mutes: "mutes", refused: "refused", system: "system", log: "log",
  settings: "settings?id=wayne", new: "settings", erase: "erase?id=acme", act: "act?do=replay&state=dead",
  missing: "nothing", wrong: "alerts?since=soon",
};
/** What docs/ shows, if QUOTABELL_DOCS names that folder. */
const SHOWN = ["overview-light-1280", "subject-dark-1280", "dead-light-380"];
/** A screenshot as WebP. docs/ has at most 150 kB of them. */
const toWebp = (page, png) => page.evaluate(async (png) => {
  const image = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (byte) => byte.charCodeAt(0))]));
  const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.4).split(",")[1];
}, png.toString("base64"));

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 380]) {
    test(`every page can be used by everybody: ${colorScheme}, ${width} px`, async () => {
      const context = await visit({ colorScheme, viewport: { width, height: 900 } });
      const page = await logIn(context);
      await go(page, "deliveries?state=dead");
      PAGES.delivery = await page.locator("tbody a[href^='delivery?id=']").last().getAttribute("href");
      const found = [];
      for (const [name, path] of Object.entries(PAGES)) {
        await go(page, path);
        found.push(...(await obstacles(page, name)));
        const shot = `${name}-${colorScheme}-${width}`;
        const png = await page.screenshot({ path: `${SHOTS}/${shot}.png`, fullPage: !SHOWN.includes(shot) });
        if (process.env.QUOTABELL_DOCS && SHOWN.includes(shot)) {
          const webp = Buffer.from(await toWebp(page, png), "base64");
          await writeFile(`${process.env.QUOTABELL_DOCS}/console-${name}.webp`, webp);
        }
      }
      await go(page, "");
      await page.getByRole("button", { name: "Log out" }).click();
      await page.getByLabel("Token").waitFor();
      found.push(...(await obstacles(page, "login")));
      assert.deepEqual(found, []);
      await context.close();
    });
  }
}

for (const javaScriptEnabled of [true, false]) {
  const how = javaScriptEnabled ? "with scripts" : "without scripts";

  test(`somebody new finds who runs out, whether they were told, and why a webhook failed, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const page = await logIn(context);
    const near = page.locator("h2:has-text('Runs out') + .wide tbody tr");
    assert.doesNotMatch(await near.first().innerText(), /used up/);
    const over = near.filter({ hasText: "globex" });
    assert.match(await over.innerText(), /globex[\s\S]*5,400 of 5,000[\s\S]*108.0 %[\s\S]*used up since/);
    await over.getByRole("link", { name: "globex" }).click();
    const alert = page.locator("h2:has-text('who was notified') + .wide tbody tr").first();
    assert.match(await alert.innerText(), /100 %[\s\S]*notified[\s\S]*email delivered/);

    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByRole("link", { name: "By cause" }).click();
    const cause = page.locator("tr", { hasText: "HTTP 422" }).first();
    assert.match(await cause.innerText(), new RegExp(`^\\s*(${TRIALS}|${TRIALS - 1})\\b`));
    await cause.locator("a[href^='delivery']").click();
    await page.getByText("unknown event type").first().waitFor();
    const id = new URL(page.url()).searchParams.get("id");

    // Its receiver is mended, and it is sent again.
    Object.assign(sample.refuses.answer, { status: 200, headers: {} });
    await page.getByRole("link", { name: "Replay…" }).click();
    await page.getByRole("heading", { name: "Replay 1 delivery?" }).waitFor();
    await page.getByRole("button", { name: "Replay" }).click();
    await outcome(page, "1 delivery replayed.");
    await eventually("it is delivered", async () => {
      await page.reload();
      return page.locator(".state.delivered").first().isVisible();
    });
    Object.assign(sample.refuses.answer, { status: 422, headers: { "webhook-delivery": "abort-message" } });
    await go(page, "log");
    await page.locator("tr", { hasText: "replayDelivery" }).filter({ hasText: id }).waitFor();
    await context.close();
  });

  test(`an operator mutes a subject for a day, and pauses and resumes sending, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const page = await logIn(context);
    await page.getByRole("searchbox").fill("initech");
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("heading", { name: "initech" }).waitFor();
    await page.locator("summary", { hasText: /^Mute$/ }).click();
    await page.locator("#mute-for").fill("1d");
    await page.locator("#mute-reason").fill("asked for it");
    await page.getByRole("button", { name: "Mute", exact: true }).click();
    await outcome(page, "The subject initech is muted until");
    await go(page, "mutes");
    const row = page.locator("tr", { hasText: "initech" });
    await row.getByRole("button", { name: "End", exact: true }).click();
    await outcome(page, "The subject initech is not muted any more.");
    if (javaScriptEnabled) {
      await refreshed(page);
      await outcome(page, "The subject initech is not muted any more.");
      await go(page, "log");
      await page.goBack();
      await page.getByRole("heading", { name: "Mutes" }).waitFor();
      assert.equal(await page.locator(".outcome").count(), 0, "it was told already");
    }

    await go(page, "");
    await page.locator("summary", { hasText: "Pause sending" }).click();
    await page.getByLabel("Why").fill("moving");
    await page.getByRole("button", { name: "Pause sending of all daemons" }).click();
    await outcome(page, "Sending is paused");
    await page.getByRole("button", { name: "Resume sending" }).click();
    await outcome(page, "Sending continues.");
    await context.close();
  });

  test(`an operator makes a link to the portal of a subject, and ends it, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const [page, customer] = [await logIn(context), await context.newPage()];
    await go(page, "subject?id=wayne");
    await page.locator("summary", { hasText: "Portal link" }).click();
    await page.getByLabel("For, such as 30m or 24h").fill("30m");
    await page.getByRole("button", { name: "Make a link" }).click();
    await outcome(page, "Everybody who has this link may use it until");
    const link = /http:\S+/.exec(await page.locator(".outcome").innerText())[0];
    await customer.goto(link);
    await customer.getByRole("heading", { name: "Your usage" }).waitFor();
    await page.locator("summary", { hasText: "Portal link" }).click();
    await page.locator("summary", { hasText: "End its links" }).click();
    await page.getByRole("button", { name: "End all links" }).click();
    await outcome(page, "All links to its portal have ended");
    await customer.reload();
    await customer.getByRole("heading", { name: "This link was withdrawn" }).waitFor();
    await context.close();
  });

  test(`two editors of one subject lose nothing, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const [first, second] = [await logIn(context), await context.newPage()];
    await go(first, "settings?id=wayne");
    await go(second, "settings?id=wayne");
    await first.getByLabel("Name in texts").fill(`Wayne ${how}`);
    await first.getByRole("button", { name: "Save" }).click();
    await outcome(first, "The settings are saved.");
    await second.getByLabel("Time zone").fill("America/New_York");
    await second.getByRole("button", { name: "Save" }).click();
    await second.getByText("Somebody else has changed these settings").waitFor();
    assert.match(await second.locator("table").innerText(), new RegExp(`Wayne ${how}`));
    assert.equal(await second.getByLabel("Time zone").inputValue(), "America/New_York");
    await second.getByRole("button", { name: "Save mine" }).click();
    await outcome(second, "The settings are saved.");
    await context.close();
  });

  test(`what is dead is sent again together, after its number is typed, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const page = await logIn(context);
    const typed = async () => {
      await go(page, "");
      await page.getByRole("link", { name: "Replay…" }).click();
      return /Replay ([\d,]+) deliveries/.exec(await page.getByRole("heading", { level: 1 }).innerText())[1];
    };
    await typed();
    await page.getByLabel("Type the number").fill("7");
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByText("nothing was changed").waitFor();
    const number = await typed();
    await page.getByLabel("Type the number").fill(number);
    await page.getByRole("button", { name: "Replay" }).click();
    await outcome(page, `${number} deliveries replayed.`);
    // The receiver refuses them again.
    await eventually("they are dead again", async () => (await typed()) === number);

    await go(page, "deliveries?state=dead");
    for (const at of [0, 1]) await page.locator("tbody [type=checkbox]").nth(at).check();
    await page.getByRole("button", { name: "Discard…" }).click();
    await page.getByRole("heading", { name: "Discard 2 deliveries?" }).waitFor();
    await page.getByRole("link", { name: /^Leave (it|them)$/ }).click();
    await context.close();
  });

  test(`an erasure needs the typed id, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const page = await logIn(context);
    const id = javaScriptEnabled ? "erased-js" : "erased-plain";
    await go(page, `subject?id=${id}`);
    await page.getByRole("link", { name: "Erase everything of it…" }).click();
    await page.getByLabel("Type the id").fill("another");
    await page.getByRole("button", { name: "Erase" }).click();
    await page.getByText("nothing was erased").waitFor();
    await page.getByLabel("Type the id").fill(id);
    await page.getByRole("button", { name: "Erase" }).click();
    await outcome(page, "Everything that was stored of it is removed");
    await context.close();
  });

  test(`a link of the command logs in once, and a token that may only read shows no forms, ${how}`, async () => {
    const context = await visit({ javaScriptEnabled });
    const page = await context.newPage();
    const link = (await sample.daemon.run("console")).trim();
    await page.goto(link);
    await page.getByRole("button", { name: "Log in for 12 hours" }).click();
    await page.getByText("one-use login (admin)").waitFor();
    await context.clearCookies();
    await page.goto(link);
    await page.getByRole("button", { name: "Log in for 12 hours" }).click();
    await page.getByText("This login was used").waitFor();
    const reader = await logIn(context, TOKENS.viewer);
    for (const path of ["", "deliveries?state=dead", "subject?id=acme", "mutes"]) {
      await go(reader, path);
      assert.equal(await reader.locator("main form[method=post]").count(), 0, path);
    }
    await context.close();
  });
}

test("a refresh keeps focus, selection, open details and what is filled in", async () => {
  const context = await visit();
  const page = await logIn(context);
  await go(page, "subject?id=acme");
  await page.locator("summary", { hasText: "in sentences" }).click();
  await page.locator("tbody a[href^='delivery?id=']").first().focus();
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("h2")));
  const state = () => page.evaluate(() => {
    const details = [...document.querySelectorAll("#live details")].map((one) => one.open);
    return [document.activeElement.href, String(getSelection()), scrollY, ...details];
  });
  const before = await state();
  await sample.daemon.count([{ subject: "acme", units: 10, metric: "requests" }]);
  await page.getByText("19,510 of 20,000").first().waitFor();
  assert.deepEqual(await state(), before);

  await page.locator("summary", { hasText: /^Mute$/ }).click();
  await page.locator("#mute-reason").fill("half a word");
  await page.locator("#told", { hasText: "not refreshed while a form is filled in" }).waitFor();
  await sample.daemon.count([{ subject: "acme", units: 10, metric: "requests" }]);
  await sample.daemon.run("usage", "acme");
  assert.equal(await page.locator("#mute-reason").inputValue(), "half a word");
  await page.locator("#mute-reason").fill("");
  await page.getByText("19,520 of 20,000").first().waitFor();
  await context.close();
});

test("an unchanged page is not sent again, and unused or hidden pages ask seldom or never", async () => {
  const context = await visit();
  const page = await logIn(context);
  await page.clock.install();
  await go(page, "mutes");
  let asked = 0;
  page.on("request", (request) => (asked += request.resourceType() === "fetch"));
  const pass = async (ms) => {
    const next = refreshed(page);
    await page.clock.runFor(ms);
    return (await next).status();
  };
  assert.equal(await pass(3_000), 200);
  await page.locator("#as-of").waitFor();
  assert.equal(await pass(3_000), 304);

  await page.getByRole("button", { name: "Pause refresh" }).click();
  await page.clock.runFor(120_000);
  assert.equal(asked, 2, "a paused page asks nothing");
  const resumed = refreshed(page);
  await page.getByRole("button", { name: "Resume refresh" }).click();
  await resumed;

  const setHidden = (isHidden) => page.evaluate((isHidden) => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
  await setHidden(true);
  asked = 0;
  await page.clock.runFor(120_000);
  assert.equal(asked, 0, "a hidden page asks nothing");
  const shown = refreshed(page);
  await setHidden(false);
  await shown;
  // It was not used for two minutes.
  asked = 0;
  await page.clock.runFor(30_000);
  assert.equal(asked, 0, "an unused page waits for a minute");
  await pass(35_000);
  await context.close();
});

test("after an outage a page that nobody used is refreshed as if it was used", async () => {
  const context = await visit();
  const page = await logIn(context);
  await page.clock.install();
  await go(page, "mutes");
  let hold;
  const held = new Promise((resolve) => (hold = resolve));
  await page.route("**/mutes", hold, { times: 1 });
  await page.clock.runFor(3_000);
  const route = await held;
  await page.clock.runFor(61_000);
  await route.fulfill({ status: 503 });
  await page.locator("#live.stale").waitFor();
  for (const ms of [5_000, 3_000]) {
    const next = refreshed(page);
    await page.clock.runFor(ms);
    assert.ok((await next).ok() || (await next).status() === 304);
    await page.locator("#live:not(.stale)").waitFor();
  }
  await context.close();
});

test("a page names somebody who logged in in another tab", async () => {
  const context = await visit();
  const [page, other] = [await logIn(context), await context.newPage()];
  await page.locator(".visitor", { hasText: "ops (admin)" }).waitFor();
  await go(other, "login");
  await other.getByLabel("Token").fill(TOKENS.viewer);
  await other.getByRole("button", { name: "Log in" }).click();
  await page.locator(".visitor", { hasText: "viewer (read)" }).waitFor();
  await context.close();
});

test("seven tabs are refreshed at once", async () => {
  const context = await visit();
  const page = await logIn(context);
  const tabs = [page, ...(await Promise.all(Array.from({ length: 6 }, () => context.newPage())))];
  await Promise.all(tabs.map(async (tab, at) => {
    await go(tab, ["", "near", "alerts", "deliveries", "destinations", "system", "log"][at]);
    for (let times = 0; times < 3; times++) await refreshed(tab);
  }));
  await context.close();
});

test("everything is done with the keyboard alone, and each key can be turned off", async () => {
  const context = await visit();
  const page = await logIn(context);
  const press = (...keys) => keys.reduce((done, key) => done.then(() => page.keyboard.press(key)), Promise.resolve());
  const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.id);
  await press("Tab");
  assert.equal(await focused(), "Skip to the content");
  await press("/");
  assert.equal(await focused(), "search");
  await page.keyboard.type("hooli?jkx/");
  assert.equal(await page.getByRole("searchbox").inputValue(), "hooli?jkx/");
  for (let letter = 0; letter < 5; letter++) await press("Backspace");
  await press("Enter");
  await page.getByRole("heading", { name: "hooli" }).waitFor();

  await page.setViewportSize({ width: 380, height: 800 });
  await page.locator("#more summary").focus();
  await press("Enter");
  assert.deepEqual(await obstacles(page, "more"), []);
  await press("Escape");
  assert.ok(!(await page.getByRole("link", { name: "Mutes" }).isVisible()), "it is closed");
  await press("Enter", "Tab", "Enter");
  await page.getByRole("heading", { name: "Mutes" }).waitFor();
  assert.equal(await page.locator("#more summary").innerText(), "More: Mutes");
  await page.setViewportSize({ width: 1280, height: 900 });

  await go(page, "deliveries?state=dead");
  await press("j", "j", "k");
  const rows = page.locator("tbody tr");
  assert.ok(await rows.nth(0).evaluate((row) => row.contains(document.activeElement)));
  const selectable = await rows.evaluateAll((all) => all.findIndex((row) => row.querySelector("[type=checkbox]")));
  for (let at = 0; at < selectable; at++) await press("j");
  await press("x");
  assert.ok(await page.locator("tbody [type=checkbox]").first().isChecked());
  await page.getByRole("button", { name: "Replay…" }).focus();
  await press("Enter");
  await page.getByRole("heading", { name: "Replay 1 delivery?" }).waitFor();
  const leave = page.getByRole("link", { name: /^Leave (it|them)$/ });
  while (!(await leave.evaluate((link) => link === document.activeElement))) await press("Tab");
  await press("Enter");
  await page.getByRole("heading", { name: "Delivery", level: 1 }).waitFor();

  const help = page.getByRole("dialog", { name: "Keys" });
  const isInRow = () => page.evaluate(() => Boolean(document.activeElement.closest("tr")));
  await go(page, "alerts");
  await press("?");
  await help.waitFor();
  await page.getByLabel("go to the next row").focus();
  await press("Space", "Escape");
  await help.waitFor({ state: "hidden" });
  for (const reload of [false, true]) {
    if (reload) await page.reload();
    await press("j");
    assert.ok(!(await isInRow()), "j is off");
  }
  await press("k");
  assert.ok(await isInRow(), "k is on");
  await context.close();
});

test("times are shown in UTC or in the zone of the user", async () => {
  const context = await visit({ timezoneId: "Asia/Ho_Chi_Minh", locale: "en-US" });
  const page = await logIn(context);
  const time = page.locator("tbody time").first();
  const at = await time.getAttribute("datetime");
  assert.equal(await time.innerText(), `${at.slice(0, 19).replace("T", " ")} UTC`);
  await page.getByRole("button", { name: "Show local time" }).click();
  const local = new Date(Date.parse(at) + 7 * 3_600_000).toISOString().slice(0, 19).replace("T", " ");
  assert.equal(await time.innerText(), `${local} GMT+7`);
  await refreshed(page);
  await go(page, "alerts");
  assert.match(await page.locator("tbody time").first().innerText(), /GMT\+7/);
  await page.getByRole("button", { name: "Show UTC" }).click();
  // A wrong clock of the browser changes no distance.
  const distance = () => page.locator("tbody time").first().getAttribute("data-distance");
  for (const days of [-3, 3]) {
    await page.clock.setFixedTime(Date.now() + days * 86_400_000);
    await go(page, "alerts");
    assert.match(await distance(), /^\d+[sm] ago$/);
    await page.getByRole("button", { name: "Pause refresh" }).click();
    const resumed = refreshed(page);
    await page.getByRole("button", { name: "Resume refresh" }).click();
    await resumed;
    assert.match(await distance(), /^\d+[sm] ago$/);
  }
  await context.close();
});

test("a page prints without navigation, and near subjects are a file for spreadsheets", async () => {
  const context = await visit();
  const page = await logIn(context);
  await page.emulateMedia({ media: "print" });
  for (const hidden of ["nav", ".search", "#pause"]) assert.ok(!(await page.locator(hidden).first().isVisible()), hidden);
  await page.pdf({ path: `${SHOTS}/overview.pdf`, format: "A4" });
  assert.ok((await stat(`${SHOTS}/overview.pdf`)).size > 10_000);
  await page.emulateMedia({ media: "screen" });
  await go(page, "near?percent=100");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "CSV" }).click()]);
  const text = (await (await download.createReadStream()).setEncoding("utf8").toArray()).join("");
  assert.match(text, /^subject,plan,metric,[\s\S]*\r\nglobex,free,requests,day,[\d-]+,5400,5000,108,/);
  assert.ok(!text.includes("hooli"));
  await context.close();
});

test("while Redis is away a page is shown again, grayed, and it refreshes when Redis is back", async () => {
  const context = await visit();
  const page = await logIn(context);
  await go(page, "deliveries?state=dead");
  const row = await page.locator("tbody tr").first().innerText();
  await sample.daemon.letRedisAnswer(false);
  await page.reload();
  await page.getByText("Redis does not answer: try again. This page is not up to date").waitFor();
  assert.ok(await page.locator("tbody tr").first().isVisible() && row);
  for (const width of [1280, 380]) {
    await page.setViewportSize({ width, height: 900 });
    assert.deepEqual(await obstacles(page, "last"), []);
    await page.screenshot({ path: `${SHOTS}/last-${width}.png` });
  }
  const controls = page.locator("header, #live").locator("button, input:not([type=hidden]), select");
  const enabled = await controls.evaluateAll((all) =>
    all.filter((one) => !one.matches(":disabled")).map((one) => one.textContent));
  assert.deepEqual(enabled, ["Log out"]);
  await go(page, "destinations");
  await page.getByRole("heading", { name: "Service Unavailable" }).waitFor();
  await page.getByRole("link", { name: "Try again" }).click();
  await page.getByRole("heading", { name: "Service Unavailable" }).waitFor();
  await go(page, "deliveries?state=dead");
  await page.locator("#live[data-last]").waitFor();
  await sample.daemon.letRedisAnswer(true);
  await page.locator("#live:not([data-last])").waitFor();
  await page.getByRole("button", { name: "Replay…" }).waitFor();
  await context.close();
});

// The last one: it stops the daemon.
test("a page stays, grayed, if nobody answers", async () => {
  const context = await visit();
  const page = await logIn(context);
  await page.context().unrouteAll();
  const asOf = await page.locator("#as-of").innerText();
  await sample.daemon.stop();
  await page.locator("#live.stale").waitFor();
  await page.locator("#told", { hasText: "no answer" }).waitFor();
  assert.ok((await page.locator("#as-of").innerText()) >= asOf);
  await page.getByRole("heading", { name: "Runs out" }).waitFor();
  await page.screenshot({ path: `${SHOTS}/stale.png` });
  await context.close();
  const refused = browser.faults.splice(0);
  assert.ok(refused.every((fault) => fault.includes("ERR_CONNECTION_REFUSED")), refused.join("\n"));
});
