// A browser whose pages must not log anything, and what axe, the width of the window and the boxes say of a page.
import { mkdir } from "node:fs/promises";
import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";

export const SHOTS = process.env.QUOTABELL_SHOTS;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
/** What a browser logs of an answer whose status is an error: tests that want one say so. */
const STATUS = /the server responded with a status of (4\d\d|503)/;

export class Browser {
  /** What pages have logged, and what they have thrown. */
  faults = [];

  static async launch() {
    const browser = new Browser();
    await mkdir(SHOTS, { recursive: true });
    browser.chromium = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
    return browser;
  }

  async visit(options = {}) {
    const context = await this.chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    context.setDefaultTimeout(30_000);
    context.on("weberror", (error) => this.faults.push(error.error().message));
    context.on("console", (message) => {
      const isFault = ["error", "warning"].includes(message.type()) && !STATUS.test(message.text());
      if (isFault) this.faults.push(message.text());
    });
    return context;
  }

  close() {
    return this.chromium.close();
  }
}

/** What keeps people from using a page, each with the page's name. */
export const obstacles = async (page, name) => {
  const axe = new AxeBuilder({ page }).options({ resultTypes: ["violations"] }).withTags(RULES);
  const { violations } = await axe.analyze();
  const found = violations.map(({ id, nodes }) =>
    `${name}: ${id}: ${nodes.map((node) => node.html).join(" ").slice(0, 300)}`);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wider > 0) found.push(`${name} is ${wider} px wider than the window`);
  const covered = await page.evaluate(() => {
    const parts = [...document.querySelectorAll(":is(header, .bar) :is(h1, time, a, button, input, summary)")];
    const shown = parts.filter((part) => part.checkVisibility()).map((part) => [part, part.getBoundingClientRect()]);
    const overlap = (a, b) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
    return shown.flatMap(([one, box], at) => shown.slice(at + 1).filter(([, other]) => overlap(box, other))
      .map(([other]) => `${one.textContent.trim()} and ${other.textContent.trim()}`));
  });
  found.push(...covered.map((both) => `${name}: ${both} overlap`));
  return found;
};
