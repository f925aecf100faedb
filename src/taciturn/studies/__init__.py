"""Studies: experiments run piece by piece, and what tables, figures and pages are made of."""
