// Helpers that read parts of the page.

/** Description of the graph's focused box. */
export const focusedBox = (browser, graph = "flame") =>
  browser.evaluate(`(() => {
    const id = document.getElementById("${graph}").getAttribute("aria-activedescendant");
    return document.getElementById(id)?.textContent;
  })()`);

/** The first rows of the table: numbers and full name. */
export const tableRows = (browser, count = 8) =>
  browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")].slice(0, ${count}).map((row) =>
    [...row.querySelectorAll(".share, .name button")].map((cell) => cell.title || cell.textContent))`);

/** The colour of a pixel in a graph, as red, green and blue. */
export const colourOf = (browser, graph, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const canvas = document.querySelector("#${graph} canvas");
    return [...canvas.getContext("2d").getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data].slice(0, 3).join(" ");
  })()`);

/** The state whose colour a pixel of a canvas has, or null. */
export const stateOfPixel = (browser, holder, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const canvas = document.querySelector("#${holder} canvas");
    const pixel = canvas.getContext("2d").getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data;
    const colour = (state) => {
      const probe = document.body.appendChild(document.createElement("span"));
      probe.style.color = "var(--" + state + ")";
      const text = getComputedStyle(probe).color;
      probe.remove();
      return text;
    };
    const found = "rgb(" + [...pixel].slice(0, 3).join(", ") + ")";
    return ["on-cpu", "runnable", "throttled", "blocked", "disk", "stopped"].find((state) => colour(state) === found) ?? null;
  })()`);

export const searchFor = (browser, text) =>
  browser.evaluate(`(() => {
    const input = document.getElementById("pattern");
    input.value = ${JSON.stringify(text)};
    input.dispatchEvent(new Event("input"));
  })()`);
