// Shows one case at a time, sends each choice, and shows the judge's verdict after it.
(() => {
  "use strict";
  const token = new URLSearchParams(location.search).get("token") || "";
  const part = (id) => document.getElementById(id);
  let state = null; // the answer to /state
  let reveal = null; // the answer to /choose, until the next case is shown
  let busy = false;
  let over = false;

  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const passage = (parts, name) => {
    const element = make("p", undefined, name || "said");
    for (const [text, quoted] of parts) element.append(quoted ? make("mark", text) : text);
    return element;
  };

  const send = async (path, body) => {
    const headers = { Authorization: `Bearer ${token}` };
    const request = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) };
    let answer;
    try {
      answer = await fetch(path, request);
    } catch {
      throw new Error("The command has ended. Run it again to continue: all labels shown as saved are in the file.");
    }
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.error);
    return content;
  };
  const act = async (work) => {
    if (busy || over) return;
    busy = true;
    try {
      await work();
      part("problem").hidden = true;
    } catch (error) {
      part("problem").textContent = error.message;
      part("problem").hidden = false;
    }
    busy = false;
    show();
  };

  const section = (title, element) => [make("h3", title), element];
  const missing = () => make("p", "not captured", "note");
  const caseParts = (shown) => {
    const parts = [];
    if (shown.messages) {
      const talk = make("div");
      for (const message of shown.messages) {
        const row = make("div", undefined, "message");
        row.append(make("div", message.role, "role"));
        if (message.content) row.append(passage(message.content));
        if (message.calls.length) {
          const calls = make("ul", undefined, "calls");
          message.calls.forEach((call) => calls.append(make("li", call)));
          row.append(calls);
        }
        talk.append(row);
      }
      parts.push(...section("Conversation", talk));
    } else {
      parts.push(...section("Question", shown.question ? passage(shown.question) : missing()));
      parts.push(...section("Answer", shown.answer ? passage(shown.answer) : missing()));
      if (shown.contexts) {
        const list = make("ol", undefined, "contexts");
        shown.contexts.forEach((context) => {
          const item = make("li");
          item.append(passage(context));
          list.append(item);
        });
        const found = shown.contexts.length ? list : make("p", "The retrieval found no text.", "note");
        parts.push(...section("Contexts, in rank order", found));
      }
    }
    for (const image of shown.images) {
      const figure = make("figure");
      if (image.source) {
        const picture = make("img");
        picture.src = image.source;
        picture.alt = image.text;
        figure.append(picture);
      }
      figure.append(make("figcaption", image.text));
      parts.push(figure);
    }
    if (shown.reference) parts.push(...section("Reference", passage(shown.reference)));
    return parts;
  };

  const button = (key, text, work, name, disabled) => {
    const element = make("button", undefined, name);
    element.type = "button";
    if (key) {
      element.append(make("kbd", key));
      element.setAttribute("aria-keyshortcuts", key);
    }
    element.append(text);
    element.disabled = Boolean(disabled);
    element.addEventListener("click", work);
    return element;
  };

  const note = part("note");
  const choose = (choice) => act(async () => {
    reveal = await send("/choose", { case: state.case.key, choice, comment: note.value });
    closeNote();
    scrollTo(0, 0);
  });
  const next = () => act(async () => {
    state = reveal.next;
    reveal = null;
    note.value = "";
    closeNote();
    scrollTo(0, 0);
  });
  const skip = () => act(async () => {
    state = await send("/skip", { case: state.case.key });
    note.value = "";
    closeNote();
    scrollTo(0, 0);
  });
  const undo = () => act(async () => {
    state = await send("/undo", {});
    reveal = null;
    note.value = state.comment || "";
    scrollTo(0, 0);
  });
  const finish = () => act(async () => {
    state = { ...state, case: null, summary: (await send("/finish", {})).summary };
    reveal = null;
    over = true;
  });
  const closeNote = () => {
    part("note-field").hidden = true;
    note.blur();
  };
  const openNote = () => {
    part("note-field").hidden = false;
    note.focus();
  };
  const saveNote = () => {
    closeNote();
    if (reveal) act(async () => { reveal.next = await send("/note", { case: state.case.key, comment: note.value }); });
  };

  const actions = () => {
    if (over || !state) return [];
    const buttons = [];
    if (reveal) buttons.push(button("Enter", "next", next, "next"));
    else if (state.case) {
      state.choices.forEach((choice, place) => buttons.push(button(choice.key, choice.text, () => choose(place), "choice")));
      buttons.push(button("s", "skip", skip));
    }
    if (reveal || state.case) buttons.push(button("n", "note", openNote));
    buttons.push(button("u", "undo", undo, "", !(reveal || state.can_undo)));
    buttons.push(button("", "finish", finish));
    return buttons;
  };
  const verdictParts = () => {
    const judge = reveal.judge;
    const parts = [make("p", `Saved: ${reveal.chosen}.`)];
    if (!judge) return parts;
    const line = make("p", "The judge: ");
    line.append(make("strong", judge.verdict));
    parts.push(line);
    if (judge.explanation) parts.push(make("p", judge.explanation, "said"));
    return parts;
  };

  const show = () => {
    if (!state) return;
    const progress = reveal ? reveal.next : state;
    const left = progress.skipped ? `, ${progress.skipped} skipped` : "";
    part("progress").textContent = `${progress.done} of ${progress.total} labelled${left}`;
    part("bar").style.width = `${(100 * progress.done) / Math.max(1, progress.total)}%`;
    part("verdict").hidden = !reveal;
    part("verdict").classList.toggle("differs", Boolean(reveal && reveal.differs));
    part("verdict").replaceChildren(...(reveal ? verdictParts() : []));
    const shown = reveal && reveal.judge ? reveal.judge.case : state.case;
    part("case").hidden = !shown;
    part("case").replaceChildren(...(shown ? caseParts(shown) : []));
    part("end").hidden = Boolean(shown);
    part("summary").replaceChildren(...(state.summary || []).map((line) => make("li", line)));
    part("over").hidden = !over;
    part("actions").replaceChildren(...actions());
    document.documentElement.dataset.ready = "yes";
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
    if (event.target === note) {
      if (event.key === "Escape") saveNote();
      return;
    }
    const onButton = event.target.tagName === "BUTTON" && (event.key === "Enter" || event.key === " ");
    if (onButton || over) return;
    const choice = reveal || !state.case ? -1 : state.choices.findIndex((each) => each.key === event.key);
    const work = {
      Enter: reveal && next, " ": reveal && next, ArrowRight: reveal && next,
      s: !reveal && state.case && skip, n: (reveal || state.case) && openNote, u: (reveal || state.can_undo) && undo,
    }[event.key];
    if (choice < 0 && !work) return;
    event.preventDefault();
    if (choice >= 0) choose(choice);
    else work();
  });
  act(async () => { state = await send("/state"); });
})();
