// The portal in a browser: its page in each language, light and dark, at two widths; a colleague's address; frames.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Browser, SHOTS, obstacles } from "./browser.mjs";
import { Daemon, Receivers, eventually } from "./daemon.mjs";

const MAY_ALL = { may: ["view", "contacts"] };
const DAY_MS = 86_400_000;
const receivers = new Receivers();
let daemon, browser, friend, stranger, framed;

before(async () => {
  const page = () => `<!DOCTYPE html><html lang="en"><title>Site</title><h1>A site</h1>
    <iframe title="Usage" width="900" height="900" src="${framed}"></iframe></html>`;
  [friend, stranger] = await Promise.all([receivers.site(page), receivers.site(page)]);
  daemon = await Daemon.start(await receivers.mail(), [friend]);
  await daemon.run("subject", "set", "acme", "--plan", "team", "--timezone", "Asia/Ho_Chi_Minh", "--name", "Acme");
  await daemon.run("contact", "add", "acme", "--email", "ops@acme.example");
  await daemon.run("subject", "set", "full", "--plan", "free");
  await daemon.run("contact", "add", "full", "--email", "nobody@full.example");
  const yesterday = new Date(Date.now() - DAY_MS).toISOString();
  await daemon.count([
    { subject: "acme", metric: "requests", units: 12_000, ts: yesterday },
    { subject: "acme", metric: "requests", units: 17_500 }, { subject: "acme", metric: "tokens", units: 412_000 },
    { subject: "full", metric: "requests", units: 6_200 },
  ]);
  await eventually("an alert arrives", () => receivers.mails.some((mail) => mail.includes("ops@acme.example")));
  await eventually("nothing waits", async () => {
    const { sending, counting } = (await daemon.json("status").catch(({ stdout }) => [JSON.parse(stdout)]))[0];
    return counting.lag === 0 && sending.outbox === 0;
  });
  browser = await Browser.launch();
});
after(async () => {
  await browser?.close();
  await daemon?.remove();
  receivers.close();
});
/** No page may log an error, break its content security policy or throw. */
afterEach(() => assert.deepEqual(browser.faults.splice(0), []));

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 380]) {
    test(`the portal can be used by everybody: ${colorScheme}, ${width} px`, async () => {
      const context = await browser.visit({ colorScheme, viewport: { width, height: 800 } });
      const page = await context.newPage();
      const found = [];
      const look = async (name) => {
        found.push(...(await obstacles(page, name)));
        await page.screenshot({ path: `${SHOTS}/portal-${name}-${colorScheme}-${width}.png`, fullPage: true });
      };
      for (const [subject, locale] of [["acme", "en"], ["acme", "vi"], ["full", "en"], ["unknown", "vi"]]) {
        await page.goto(await daemon.portal(subject, { ...MAY_ALL, locale }));
        assert.equal(await page.locator("html").getAttribute("lang"), locale);
        // What is left, and until when, is in sight at once.
        if (subject !== "unknown") {
          for (const part of [".figure", ".card time"]) {
            const { y, height } = await page.locator(part).first().boundingBox();
            assert.ok(y + height < 800, `${part} is at ${y}`);
          }
        }
        await look(`${subject}-${locale}`);
        if (locale !== "en" || subject !== "acme") continue;
        for (const summary of await page.locator("summary").all()) await summary.click();
        await look(`${subject}-${locale}-open`);
      }
      await page.goto((await daemon.portal("acme", {})).replace(/.{9}\/$/, "/"));
      await look("cut");
      assert.deepEqual(found, []);
      await context.close();
    });
  }
}

test("a customer adds a colleague, who confirms", async () => {
  const context = await browser.visit({ viewport: { width: 380, height: 800 } });
  const page = await context.newPage();
  await page.goto(await daemon.portal("acme", { ...MAY_ALL, locale: "en" }));
  await page.locator("summary", { hasText: "Add a contact" }).click();
  await page.getByLabel("Email address or URL").fill("no address");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByText("This is not an address to which alerts may be sent").waitFor();
  await page.getByLabel("Email address or URL").fill("colleague@acme.example");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByText("The contact is added.").waitFor();
  const card = page.locator(".card", { hasText: "colleague@acme.example" });
  await card.getByText("not confirmed yet").waitFor();
  const mail = await eventually("the request arrives", () =>
    receivers.mails.find((mail) => mail.includes("colleague@acme.example")));
  await card.getByLabel("Code from the email").fill(/^ +(\d{6})\r?$/m.exec(mail)[1]);
  await card.getByRole("button", { name: "Confirm" }).click();
  await page.getByText("The contact is confirmed.").waitFor();
  await card.getByText("gets alerts").waitFor();
  await page.screenshot({ path: `${SHOTS}/portal-colleague.png`, fullPage: true });
  await context.close();
});

test("a site of portal.origins shows the portal in a frame, and no other site does", async () => {
  framed = await daemon.portal("acme", { ...MAY_ALL, locale: "en" });
  const context = await browser.visit();
  const page = await context.newPage();
  await page.goto(friend);
  const frame = page.frameLocator("iframe");
  await frame.getByRole("heading", { name: "Your usage: Acme" }).waitFor();
  const card = frame.locator(".card", { hasText: "ops@acme.example" });
  await card.locator("summary").click();
  await card.getByLabel("Thresholds").fill("100");
  await card.getByRole("button", { name: "Save" }).click();
  await frame.getByText("The thresholds are changed.").waitFor();
  assert.deepEqual(browser.faults.splice(0), []);

  await page.goto(stranger);
  await eventually("the frame is refused", () => browser.faults.some((fault) => fault.includes("frame-ancestors")));
  assert.equal(await page.frameLocator("iframe").getByText("Your usage").count(), 0);
  const others = browser.faults.splice(0).filter((fault) => !fault.includes("frame-ancestors"));
  assert.deepEqual(others, []);
  await context.close();
});

test("while Redis is away a customer sees the page again, grayed, without forms", async () => {
  const context = await browser.visit({ viewport: { width: 380, height: 800 } });
  const page = await context.newPage();
  await page.goto(await daemon.portal("acme", { ...MAY_ALL, locale: "en" }));
  const used = await page.locator(".figure").first().innerText();
  await page.getByRole("button", { name: "Send a test message" }).first().waitFor();
  await daemon.letRedisAnswer(false);
  try {
    await page.reload();
    await page.getByRole("alert").filter({ hasText: "This is the state as of" }).waitFor();
    assert.equal(await page.locator(".stale .figure").first().innerText(), used);
    assert.equal(await page.locator("button, input, select").count(), 0);
    assert.deepEqual(await obstacles(page, "last"), []);
    await page.screenshot({ path: `${SHOTS}/portal-last-380.png`, fullPage: true });
  } finally {
    await daemon.letRedisAnswer(true);
  }
  await eventually("the page is back", async () => {
    await page.getByRole("link", { name: "Try again" }).click();
    return (await page.locator(".stale").count()) === 0;
  });
  await page.getByRole("button", { name: "Send a test message" }).first().waitFor();
  await context.close();
});
