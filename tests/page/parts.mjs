// What is seen of the page's parts.

/** The graph's box with the focus, in words. */
export const focusedBox = (browser, graph = "flame") =>
  browser.evaluate(`(() => {
    const id = document.getElementById("${graph}").getAttribute("aria-activedescendant");
    return document.getElementById(id)?.textContent;
  })()`);

/** The first rows of the table: the numbers, and the whole name. */
export const tableRows = (browser, count = 8) =>
  browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")].slice(0, ${count}).map((row) =>
    [...row.querySelectorAll(".share, .name button")].map((cell) => cell.title || cell.textContent))`);

/** The colour of a place in a graph, as red, green and blue. */
export const colourOf = (browser, graph, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const canvas = document.querySelector("#${graph} canvas");
    return [...canvas.getContext("2d").getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data].slice(0, 3).join(" ");
  })()`);

export const searchFor = (browser, text) =>
  browser.evaluate(`(() => {
    const input = document.getElementById("pattern");
    input.value = ${JSON.stringify(text)};
    input.dispatchEvent(new Event("input"));
  })()`);
