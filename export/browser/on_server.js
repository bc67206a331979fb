  const notice = "Images are sent to this server.";
  const { classNames, top: shown } = {{facts}};

  async function classify(image) {
    const body = new FormData();
    body.append("images", image);
    const start = performance.now();
    const response = await fetch(`classify?top=${classNames.length}`, { method: "POST", body });
    const content = await response.json();
    const milliseconds = performance.now() - start;
    if (!response.ok) throw new Error(content.error);
    const [{ top, labels, answer, error }] = content.predictions;
    if (error) throw new Error(error);
    const found = new Map(top.map((row) => [row.class, row.probability]));
    const probabilities = classNames.map((name) => found.get(name));
    return { top: top.slice(0, shown), labels, answer, probabilities, milliseconds };
  }

  const open = async () => ({ classify, classNames });
