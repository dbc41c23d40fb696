"""The cursors of a topic's log: what each subscription has acknowledged, in memory and stored."""
