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
    } catch {  // the browser refuses: the text is shown and selected, to be copied by hand
      citation.classList.add("shown");
      getSelection().selectAllChildren(citation);
      status.textContent = "Copy the selected text:";
    }
  });
}
// A link to something inside a closed part opens it.
const open = () => document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details")?.setAttribute("open", "");
addEventListener("hashchange", open);
open();
