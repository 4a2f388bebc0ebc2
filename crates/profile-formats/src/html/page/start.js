// Reads the profile and starts the page.

import { App } from "./app.js";
import { readProfile } from "./document.js";
import { getElement } from "./elements.js";

async function startPage() {
  const message = getElement("message");
  try {
    const source = getElement("profile");
    const profile = await readProfile(source.textContent);
    source.remove();
    new App(profile).start();
  } catch (error) {
    const isUnsupported = typeof DecompressionStream === "undefined";
    message.textContent = isUnsupported
      ? "This browser is too old for the page: it has no DecompressionStream."
      : `This page cannot be shown: ${error}`;
    message.hidden = false;
    throw error;
  }
}

startPage();
