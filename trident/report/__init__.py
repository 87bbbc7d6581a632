"""What users can ask about an optimized callable."""
