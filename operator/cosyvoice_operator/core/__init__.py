"""Pure decisions: what a CosyVoiceDeployment needs, from facts and the time alone."""
