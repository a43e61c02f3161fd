"""What replays showed: figures, a table's rows, a page with plots. No files: text out."""
