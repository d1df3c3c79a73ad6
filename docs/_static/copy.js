// A button on each code block copies it; of recorded sessions it copies the commands, without prompts and output.
"use strict";

function copied(block) {
  const lines = block.textContent.replace(/\n$/, "").split("\n");
  if (lines.some((line) => line.startsWith(">>> ")))
    return lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4)).join("\n");
  if (!lines[0].startsWith("$ ")) return lines.join("\n");
  let continued = false;
  const commands = lines.filter((line) => {
    const command = continued || line.startsWith("$ ");
    continued = command && line.endsWith("\\");
    return command;
  });
  return commands.map((line) => line.replace(/^\$ /, "")).join("\n");
}

document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the code");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(copied(block));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.parentElement.append(button);
  }
});
