// Tests the interactive page with the pointer, with keys alone, and by its accessibility attributes.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { colourOf, focusedBox, searchFor, tableRows } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("known.html")));

const focused = (graph) => focusedBox(browser, graph);
const rows = () => tableRows(browser);
const colourAt = (...place) => colourOf(browser, ...place);
const setPattern = (text) => searchFor(browser, text);

test("the header describes the measurement, and the page loads nothing", async () => {
  assert.equal(await browser.text("target"), "On-CPU: pid 7 (app)");
  const facts = await browser.text("facts");
  assert.match(facts, /cpu-clock at 100 Hz on 2 CPUs · 3\.0 s · .* · 300 samples · 0 lost/);
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("light");
});

test("another event is shown on request, with time as its unit; a profile of one event offers no choice", async () => {
  assert.equal(await browser.evaluate("document.getElementById('event').parentElement.hidden"), true);
  await browser.open(page("events.html"));
  assert.equal(await browser.evaluate("document.getElementById('event').parentElement.hidden"), false);
  assert.equal(await browser.text("target"), "Waiting: pid 7 (app)", "1.5 s of waiting are more than 0.2 s on a CPU");
  await browser.press("e");
  assert.match(await browser.text("facts"), /cpu-clock at 100 Hz on 2 CPUs · 2\.0 s · .* · 20 samples · 0 lost/);
  assert.deepEqual((await rows())[0], ["100.0 %", "100.0 %", "work"]);
  await browser.press("e");
  assert.equal(await browser.text("target"), "Waiting: pid 7 (app)");
  assert.match(await browser.text("facts"), /off-cpu of at least 1000 us on 2 CPUs · 2\.0 s · .* · 1\.5 s · 1 sample · 0 lost/);
  assert.match(await browser.text("selected"), /whole time: 1\.5 s/);
  assert.deepEqual((await rows())[0], ["100.0 %", "100.0 %", "[wait]"]);
  await browser.press("e");
  assert.match(await browser.text("selected"), /whole time: 20 samples/);
  assert.deepEqual((await rows())[0], ["100.0 %", "100.0 %", "work"]);
});

test("the page begins with the first event that has samples", async () => {
  await browser.open(page("only-waiting.html"));
  assert.equal(await browser.text("target"), "Waiting: pid 7 (app)");
  assert.match(await browser.evaluate("document.getElementById('event').selectedOptions[0].textContent"), /off-cpu/);
  assert.deepEqual((await rows())[0], ["100.0 %", "100.0 %", "[wait]"]);
  await browser.press("e");
  assert.match(await browser.text("facts"), / 0 samples /);
});

test("a box shows its share, its kind of code and the source of its symbol; a click zooms and Escape goes back", async () => {
  const rowPx = 18;
  const width = await browser.evaluate("document.getElementById('flame').clientWidth");
  await browser.point("#flame", [width * 0.2, 3.5 * rowPx]);
  await browser.until("document.querySelector('#details .title')");
  const details = await browser.text("details");
  assert.match(details, /App!Demo\.Program\.Work\(int32\)200 samples · 66\.7 % of all · self 0 \(0\.0 %\)/);
  assert.match(details, /precompiled · \/app\/App\.dll · symbolized by \.symtab/);
  await browser.point("#flame", [width * 0.2, 3.5 * rowPx], [width * 0.2, 3.5 * rowPx]);
  assert.match(await browser.text("breadcrumbs"), /all.*app.*main.*Demo\.Program\.Work/);
  assert.match(await browser.text("spoken"), /zoomed to App!Demo\.Program\.Work\(int32\), 66\.7 %/);
  assert.deepEqual((await rows())[0], ["100.0 %", "100.0 %", "App!Demo.Program.Hot(class System.String) (Hot.cs:12)"]);
  await browser.press("Escape");
  assert.equal(await browser.text("breadcrumbs"), "all");
});

test("Escape in the search box ends the search in the whole page", async () => {
  await browser.press("/");
  await browser.type("Hot");
  assert.match(await browser.text("matched"), /66\.7 % of samples, 1 function/);
  assert.equal((await rows()).length, 1);
  await browser.press("Escape");
  assert.equal(await browser.evaluate("document.getElementById('pattern').value"), "");
  assert.equal(await browser.text("matched"), "");
  assert.ok((await rows()).length > 1);
  assert.notEqual(await browser.evaluate("document.activeElement.id"), "pattern");
});

test("numbers of the function table are in their columns, and the details of a box in their panel", async () => {
  for (const name of ["known.html", "large.html", "hostile.html", "many-lanes.html"]) {
    await browser.open(page(name));
    const beyond = await browser.evaluate(`[...document.querySelectorAll("#functions td.number")].slice(0, 40).filter((cell) => {
      const end = cell.getBoundingClientRect().right;
      const parts = [...cell.children].map((part) => part.getBoundingClientRect());
      const isSplit = parts.some(({ top }) => top >= parts[0].bottom);
      return isSplit || parts.some(({ left, right }) => right > end + 0.5 || left < cell.getBoundingClientRect().left - 0.5);
    }).map(({ textContent }) => textContent)`);
    assert.deepEqual(beyond, [], name);
    for (const key of ["g", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"]) {
      await browser.press(key);
      const clipped = await browser.evaluate(`(() => {
        const details = document.getElementById("details");
        return details.scrollHeight - details.clientHeight;
      })()`);
      assert.ok(clipped <= 0, `${name}: ${clipped} px are clipped`);
    }
  }
});

test("a box shows the place in the source, and an unsymbolized box shows the reason and the remedy", async () => {
  await setPattern("Hot.cs");
  await browser.press("n");
  assert.match(await browser.text("details"), /JIT · \/src\/Hot\.cs:12 · symbolized by runtime events$/);
  await setPattern("libfoo");
  await browser.press("n");
  assert.match(await browser.text("details"), /self 1 \(0\.33 %\)unsymbolized · \/lib\/libfoo\.so · unsymbolized: no symbols: put its debug file libfoo\.so\.dbg/);
  await browser.press("l");
  assert.match(await browser.text("view-ledger"), /no symbols in \/lib\/libfoo\.so→ put its debug file libfoo\.so\.dbg .* the symbol server debuginfod1/);
});

test("the legend names every kind of code", async () => {
  const kinds = await browser.evaluate("[...document.querySelectorAll('#legend li')].map(({ textContent }) => textContent)");
  assert.deepEqual(kinds, ["JIT", "managed, precompiled", "native", "inlined", "kernel", "unsymbolized"]);
});

test("the header describes the active filters and explains an empty page", async () => {
  await browser.open(page("part.html"));
  assert.match(await browser.text("facts"), /· 200 of 300 samples: --focus Hot · 0 lost$/);
  await browser.open(page("nothing.html"));
  assert.equal(await browser.text("message"), "No sample is left: --focus no such function");
  await browser.open(page("empty.html"));
  assert.match(await browser.text("message"), /^No sample was taken: the target did not run on a CPU in this time/);
});

test("the search shows the matching share of samples in the graph, the table and the heat map", async () => {
  await setPattern("^tree::|ksys_");
  assert.equal(await browser.text("matched"), "66.3 % of samples, 2 functions");
  assert.equal(await browser.text("shown"), "2 matching");
  await browser.picture("search");
  await setPattern("Hot.cs");
  assert.equal(await browser.text("matched"), "66.7 % of samples, 1 function");
  await setPattern("walk<int>(");
  assert.equal(await browser.text("matched"), "33.3 % of samples, 1 function, taken as text");
  await setPattern("");
  assert.equal(await browser.text("matched"), "");
});

test("the table sorts by each column", async () => {
  assert.deepEqual((await rows())[0], ["66.7 %", "66.7 %", "App!Demo.Program.Hot(class System.String) (Hot.cs:12)"]);
  await browser.click("#functions th.total button");
  assert.deepEqual((await rows()).map((row) => row[2]).slice(0, 2), ["main", "App!Demo.Program.Hot(class System.String) (Hot.cs:12)"]);
  await browser.click("#functions th.total button");
  assert.equal((await rows())[0][2], "[libfoo.so]");
  await browser.click("#functions th.name button");
  assert.deepEqual((await rows())[0], ["66.7 %", "66.7 %", "App!Demo.Program.Hot(class System.String) (Hot.cs:12)"]);
  const sorted = "document.querySelector('#functions th[aria-sort=ascending]').textContent";
  assert.equal(await browser.evaluate(sorted), "Function");
});

test("each sample of a recursive function counts once", async () => {
  const walk = (await rows()).find(([, , name]) => name.startsWith("tree::walk"));
  assert.deepEqual(walk, ["0.0 %", "33.3 %", "tree::walk<int>(Node*)"]);
});

test("a click on a row shows callers and callees", async () => {
  await browser.click("#functions tbody tr");
  assert.match(await browser.text("middle"), /Demo\.Program\.Hot.*200 samples, 66\.7 % of all/);
  await browser.evaluate("document.getElementById('callers').focus()");
  assert.match(await focused("callers"), /Hot\(class System\.String\) \(Hot\.cs:12\), 100\.0 %/);
  await browser.press("ArrowUp");
  assert.match(await focused("callers"), /App!Demo\.Program\.Work\(int32\), 50\.0 %|tree::walk<int>\(Node\*\), 50\.0 %/);
  await browser.picture("sandwich");
  await browser.press("f");
  assert.equal(await browser.evaluate("document.getElementById('view-flame').hidden"), false);
});

test("callers and callees of a recursive function start at its outermost call", async () => {
  await browser.evaluate(`[...document.querySelectorAll("#functions button")].find(({ title }) => title.startsWith("tree::walk")).click()`);
  assert.match(await browser.text("middle"), /100 samples, 33\.3 % of all/);
  await browser.evaluate("document.getElementById('callees').focus()");
  const below = [];
  for (const _ of "123") {
    below.push(await focused("callees"));
    await browser.press("ArrowDown");
  }
  assert.match(below.join("\n"), /^tree::walk<int>.*100\.0 %.*\ntree::walk<int>.*100\.0 %.*\nApp!Demo\.Program\.Hot.*100\.0 %/);
  await browser.evaluate("document.getElementById('callers').focus()");
  await browser.press("ArrowUp");
  assert.match(await focused("callers"), /^App!Demo\.Program\.Work\(int32\), 100\.0 %/);
});

test("a range of the heat map limits the samples to that time", async () => {
  await browser.point("#heat", [1, 1]);
  assert.match(await browser.text("selected"), /\(0\.00 s to 0\.02 s: 2 samples\)$/);
  const [width, height] = await browser.evaluate("(({ width, height }) => [width, height - 16])(document.querySelector('#heat canvas').getBoundingClientRect())");
  await browser.point("#heat", [width * 0.7, 1], [width - 2, height - 1]);
  assert.match(await browser.text("selected"), /^2\.\d\d s to 3\.\d\d s: \d+ samples/);
  assert.deepEqual((await rows())[0].slice(2), ["ksys_read"]);
  assert.ok(!(await rows()).some((row) => row[2].includes("Hot")), "nothing of the first two seconds");
  await browser.picture("heat-map");
  await browser.press("w");
  assert.match(await browser.text("selected"), /^whole time: 300 samples/);
});

test("a range can be entered as text", async () => {
  await browser.evaluate(`(() => {
    const input = document.getElementById("to");
    input.value = "1";
    input.dispatchEvent(new Event("change"));
  })()`);
  assert.match(await browser.text("selected"), /^0\.00 s to 1\.00 s: 100 samples/);
});

test("containers and threads are separate when enabled", async () => {
  await browser.evaluate("document.getElementById('flame').focus()");
  await browser.press("t");
  assert.equal(await browser.text("spoken"), "group by: container");
  await browser.press("ArrowDown");
  assert.match(await focused(), /^container 4f1c3ab99a0e \(shop\/web-0\/app\), 100\.0 %/);
  await browser.press("ArrowUp");
  await browser.press("t");
  await browser.press("t");
  assert.equal(await browser.text("spoken"), "group by: thread");
  await browser.press("ArrowDown");
  assert.match(await focused(), /^thread 7 \(app\), 66\.7 %/);
  await browser.press("ArrowRight");
  assert.match(await focused(), /^thread 8 \(worker;1\), 33\.3 %/);
  await browser.press("t");
  await browser.press("Home");
  await browser.press("ArrowDown");
  assert.match(await focused(), /^threads named app, 66\.7 %/);
});

test("the root is above or below, also after another view was shown", async () => {
  for (const key of ["i", "l", "w", "f"]) await browser.press(key);
  const height = await browser.evaluate("document.getElementById('flame').clientHeight");
  await browser.point("#flame", [30, height - 5]);
  await browser.until("document.querySelector('#details .title')?.textContent === 'all'");
  await browser.picture("flame");
});

test("kinds of code have different colours in the light and in the dark theme", async () => {
  const main = () => colourAt("flame", 300, 2.5 * 18 - 6);
  const background = () => browser.evaluate("getComputedStyle(document.documentElement).backgroundColor");
  const light = [await main(), await background()];
  await browser.press("d");
  assert.equal(await browser.evaluate("document.documentElement.dataset.theme"), "dark");
  await browser.picture("dark");
  const dark = [await main(), await background()];
  assert.ok(dark.every((colour, index) => colour !== light[index]), `${light} and ${dark}`);
  const kinds = await browser.evaluate(
    "[...document.querySelectorAll('#legend .swatch')].map((swatch) => getComputedStyle(swatch).backgroundColor)",
  );
  assert.equal(kinds.length, 6);
  assert.equal(new Set(kinds).size, 6);
});

test("the dark theme of the system is used", async () => {
  await browser.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  await browser.until("document.getElementById('theme').textContent === 'Light'");
  await browser.call("Emulation.setEmulatedMedia", { features: [] });
  await browser.until("document.getElementById('theme').textContent === 'Dark'");
});

test("every function is available by keyboard", async () => {
  await browser.press("/");
  await browser.type("io");
  assert.match(await browser.text("matched"), /33\.0 % of samples, 1 function/);
  await browser.press("Enter");
  assert.match(await focused(), /^io, 33\.0 %, self 0\.0 %, inlined/);
  await browser.press("Enter");
  assert.match(await browser.text("breadcrumbs"), /io$/);
  await browser.press("s");
  assert.match(await browser.text("middle"), /^io/);
  await browser.press("ArrowDown");
  await browser.press("s");
  assert.match(await browser.text("middle"), /^ksys_read/);
  await browser.press("Backspace");
  await browser.press("Backspace");
  assert.equal(await browser.text("breadcrumbs"), "all");
  await browser.press("h");
  await browser.press("ArrowDown");
  assert.equal(await browser.evaluate("document.activeElement.closest('tbody') !== null"), true);
  await browser.press("m");
  for (const _ of "123") await browser.press("ArrowRight", { shift: true });
  assert.match(await browser.text("selected"), /^0\.00 s to 0\.3\d s: 3\d samples/);
  await browser.press("Escape");
  assert.match(await browser.text("selected"), /^whole time/);
  await browser.press("l");
  assert.match(await browser.text("view-ledger"), /samples in this profile300100\.0 %/);
  await browser.picture("ledger");
  await browser.press("?");
  assert.equal(await browser.evaluate("document.getElementById('keys').open"), true);
  await browser.picture("keys");
  await browser.press("Escape");
  assert.equal(await browser.evaluate("document.getElementById('keys').open"), false);
});

test("the focused item of the tree is available to screen readers", async () => {
  await browser.evaluate("document.getElementById('flame').focus()");
  await browser.press("ArrowDown");
  await browser.press("ArrowDown");
  const { nodes } = await browser.call("Accessibility.getFullAXTree");
  const items = nodes.filter(({ role }) => role?.value === "treeitem").map(({ name }) => name.value);
  assert.ok(items.includes("main, 100.0 %, self 0.0 %, native"), items.join("\n"));
  assert.ok(items.some((name) => name.startsWith("App!Demo.Program.Work(int32), 66.7 %")), items.join("\n"));
  const unnamed = nodes.filter(({ role, name }) => ["button", "textbox", "combobox"].includes(role?.value) && !name?.value);
  assert.deepEqual(unnamed, []);
});

test("names are shown as text, whatever they contain", async () => {
  await browser.open(page("hostile.html"));
  assert.match(await browser.evaluate("document.title"), /^On-CPU: <img src=x onerror=/);
  assert.equal(await browser.evaluate("document.images.length + document.querySelectorAll('[onclick]').length"), 0);
  assert.equal((await rows()).filter((row) => row[2] === "(empty name)").length, 2);
  await setPattern("</script>");
  assert.match(await browser.text("matched"), /^2\.\d % of samples, 1 function/);
  await setPattern("__proto__|constructor");
  assert.match(await browser.text("matched"), /2 functions$/);
  await setPattern("");
  await browser.click("#functions tbody tr");
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("hostile");
});

test("a profile without samples is a page without boxes", async () => {
  await browser.open(page("empty.html"));
  assert.match(await browser.text("facts"), /0 samples · 0 lost/);
  for (const key of ["s", "ArrowUp", "Enter", "Escape", "l", "Escape", "i", "t", "o", "n", "h", "Enter", "0", "Escape"]) await browser.press(key);
  assert.deepEqual(browser.complaints(), []);
});

test("50,000 stacks are shown and searched", async () => {
  await browser.open(page("large.html"));
  await searchFor(browser, "Service12");
  assert.match(await browser.text("matched"), /111 functions$/);
  await browser.picture("large");
});
