// Drives one page in a headless Chromium over the DevTools protocol, whose JSON messages go through two pipes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--remote-debugging-pipe",
  "--window-size=1440,900",
];

/** The deadline of every wait. */
const DEADLINE_MS = 60_000;

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "profiler-page-"));
    browser.process = spawn("chromium", [...FLAGS, `--user-data-dir=${browser.folder}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    browser.answers = new Map();
    browser.ended = new Promise((resolve) => browser.process.once("exit", resolve)).then(() => {
      for (const answer of browser.answers.values()) answer.reject(new Error("the browser has ended"));
    });
    browser.events = [];
    browser.listen();
    const { targetInfos } = await browser.call("Target.getTargets");
    const { targetId } = targetInfos.find(({ type }) => type === "page");
    const { sessionId } = await browser.call("Target.attachToTarget", { targetId, flatten: true });
    browser.sessionId = sessionId;
    for (const domain of ["Page", "Runtime", "Network", "Log", "Accessibility"]) await browser.call(`${domain}.enable`);
    // Without it, elements have no focus events before the first key or click.
    await browser.call("Emulation.setFocusEmulationEnabled", { enabled: true });
    return browser;
  }

  async stop() {
    await this.call("Browser.close").catch(() => {});
    await this.ended;
    rmSync(this.folder, { recursive: true, force: true });
  }

  listen() {
    let text = "";
    this.process.stdio[4].setEncoding("utf8").on("data", (data) => {
      const messages = (text + data).split("\0");
      text = messages.pop();
      for (const message of messages) this.receive(JSON.parse(message));
    });
  }

  receive(message) {
    const answer = this.answers.get(message.id);
    this.answers.delete(message.id);
    if (!answer) this.events.push(message);
    else if (message.error) answer.reject(new Error(message.error.message));
    else answer.resolve(message.result);
  }

  call(method, params = {}) {
    return this.send({ method, params, sessionId: this.sessionId });
  }

  /** Sends a command to the browser. */
  callBrowser(method, params = {}) {
    return this.send({ method, params });
  }

  send(message) {
    const id = (this.lastId = (this.lastId ?? 0) + 1);
    this.process.stdio[3].write(`${JSON.stringify({ id, ...message })}\0`);
    const answer = new Promise((resolve, reject) => this.answers.set(id, { resolve, reject }));
    const late = () => this.answers.get(id)?.reject(new Error(`no answer to ${message.method} in ${DEADLINE_MS} ms`));
    const timer = setTimeout(late, DEADLINE_MS);
    return answer.finally(() => clearTimeout(timer));
  }

  /** Evaluates an expression in the page. */
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    assert.equal(exceptionDetails, undefined, `${expression}: ${exceptionDetails?.exception?.description}`);
    return result.value;
  }

  /** Waits until an expression in the page is true. */
  async until(expression) {
    const start = Date.now();
    while (!(await this.evaluate(`Boolean(${expression})`))) {
      assert.ok(Date.now() - start < DEADLINE_MS, `never true: ${expression}`);
      await this.evaluate("new Promise(requestAnimationFrame)");
    }
  }

  /** Opens a page from a file and waits until it shows the profile. */
  async open(path) {
    this.events = [];
    await this.call("Page.navigate", { url: `file://${path}` });
    await this.until("performance.getEntriesByName('shown').length || document.getElementById('message')?.hidden === false");
  }

  /**
   * Opens a page and measures the time to the first picture of the profile, and the CPU time of the page's thread until
   * then. Neither contains the time in which the thread waited for a CPU.
   */
  async costOfOpening(path) {
    const before = new Map((await this.renderers()).map((renderer) => [renderer.id, renderer]));
    await this.open(path);
    const paintedMs = await this.evaluate("new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))");
    const spent = (await this.renderers()).map(({ id, cpuMs, waitedMs }) => {
      const { cpuMs: cpuBeforeMs, waitedMs: waitedBeforeMs } = before.get(id) ?? { cpuMs: 0, waitedMs: 0 };
      return { cpuMs: cpuMs - cpuBeforeMs, waitedMs: waitedMs - waitedBeforeMs };
    });
    const { cpuMs, waitedMs } = spent.reduce((one, other) => (one.cpuMs > other.cpuMs ? one : other));
    return { cpuMs, shownMs: paintedMs - waitedMs };
  }

  /** The renderer processes, with the CPU time of their main threads and the time that these waited for a CPU. */
  async renderers() {
    const { processInfo } = await this.callBrowser("SystemInfo.getProcessInfo");
    const NS_PER_MS = 1e6;
    return processInfo
      .filter(({ type }) => type === "renderer")
      .map(({ id }) => {
        const [cpuNs, waitedNs] = readFileSync(`/proc/${id}/schedstat`, "utf8").split(" ").map(Number);
        return { id, cpuMs: cpuNs / NS_PER_MS, waitedMs: waitedNs / NS_PER_MS };
      });
  }

  /** Errors of the page, and the resources that it loaded besides itself. */
  complaints() {
    const said = this.events.flatMap(({ method, params }) => {
      if (method === "Runtime.exceptionThrown") return [params.exceptionDetails.exception?.description];
      if (method === "Log.entryAdded") return [params.entry.text];
      if (method === "Network.requestWillBeSent" && params.type !== "Document") return [params.request.url];
      return [];
    });
    return said;
  }

  text(id) {
    return this.evaluate(`document.getElementById(${JSON.stringify(id)}).textContent`);
  }

  click(selector) {
    return this.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }

  async press(key, { shift = false } = {}) {
    const text = { Enter: "\r" }[key] ?? (key.length === 1 ? key : undefined);
    const event = { key, text, modifiers: shift ? 8 : 0, windowsVirtualKeyCode: KEY_CODES[key] };
    await this.call("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await this.call("Input.dispatchKeyEvent", { type: "keyUp", ...event, text: undefined });
  }

  async type(text) {
    for (const key of text) await this.press(key);
  }

  /** Moves the pointer to a position within an element, and presses it there if a second position follows. */
  async point(selector, [x, y], to) {
    const box = await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect().toJSON()`);
    const place = ([x, y]) => ({ x: box.x + x, y: box.y + y });
    const send = (type, at, button) =>
      this.call("Input.dispatchMouseEvent", { type, ...place(at), button, buttons: button === "left" ? 1 : 0, clickCount: 1 });
    await send("mouseMoved", [x, y], "none");
    if (!to) return;
    await send("mousePressed", [x, y], "left");
    await send("mouseMoved", to, "left");
    await send("mouseReleased", to, "left");
  }

  /** Saves a screenshot for manual inspection if a folder for screenshots is set. */
  async picture(name) {
    const folder = process.env.PICTURES;
    if (!folder) return;
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(folder, `${name}.png`), Buffer.from(data, "base64"));
  }
}

const KEY_CODES = {
  Backspace: 8,
  Tab: 9,
  Enter: 13,
  Escape: 27,
  Home: 36,
  ArrowLeft: 37,
  ArrowUp: 38,
  ArrowRight: 39,
  ArrowDown: 40,
};
