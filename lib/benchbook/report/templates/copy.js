document.documentElement.classList.add("scripted");
for (const button of document.querySelectorAll("button.copy")) {
  const status = button.nextElementSibling;
  const citation = status.nextElementSibling;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const [page] = location.href.split("#");
    const address = location.protocol === "file:" ? "" : ` ${page}#${button.dataset.anchor}`;
    try {
      await navigator.clipboard.writeText(citation.textContent + address);
      status.textContent = "Copied.";
    } catch {  // the browser refuses: show and select the text, so that the reader can copy it
      citation.classList.add("shown");
      getSelection().selectAllChildren(citation);
      status.textContent = "Copy the selected text:";
    }
  });
}
